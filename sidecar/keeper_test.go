package sidecar

import (
	"testing"
	"time"

	"ringside/shard"
)

func TestNextStepOfAKeeper(t *testing.T) {
	const hold = 2 * time.Second
	for _, c := range []struct {
		name  string
		view  shard.View
		seen  time.Duration
		epoch uint64
		want  step
	}{
		{"never heard", shard.View{}, time.Hour, 5, stepInstall},
		{"as it should be", shard.View{Epoch: 5, Phase: shard.Done}, time.Hour, 5, stepNone},
		{"behind", shard.View{Epoch: 4, Phase: shard.Done}, 0, 5, stepBegin},
		{"far behind", shard.View{Epoch: 1, Phase: shard.Done}, 0, 5, stepBegin},
		{"phase not held yet", shard.View{Epoch: 5, Phase: shard.Preparing}, hold - 1, 5, stepNone},
		{"phase held", shard.View{Epoch: 5, Phase: shard.Preparing}, hold, 5, stepEnd},
		{"behind, but its own phase first", shard.View{Epoch: 4, Phase: shard.Preparing}, hold - 1, 5, stepNone},
		{"behind, its own phase held", shard.View{Epoch: 4, Phase: shard.Active}, hold, 5, stepEnd},
		{"ahead", shard.View{Epoch: 6, Phase: shard.Done}, 0, 5, stepFollow},
		{"ahead and changing, left by whoever began it", shard.View{Epoch: 6, Phase: shard.Preparing}, hold, 5, stepEnd},
	} {
		if got := nextStep(c.view, c.seen, c.epoch, hold); got != c.want {
			t.Errorf("%s: step %d, want %d", c.name, got, c.want)
		}
	}
}
