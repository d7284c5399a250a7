package origin

import (
	"testing"
	"time"

	"ringside/shard"
)

// Guards P3: what was asked before a forgetting, or by a pool that was replaced, confirms nothing, however late the answer comes.
func TestLateAnswersDoNotCount(t *testing.T) {
	var announced []shard.View
	w := &word{name: "s1", heard: func(_ string, v shard.View) { announced = append(announced, v) }}
	first, second := &pool{}, &pool{}
	one, two := shard.View{Epoch: 1, Phase: shard.Done}, shard.View{Epoch: 2, Phase: shard.Preparing, From: 1}
	known := func() shard.View {
		v, _ := w.confirmation.View()
		return v
	}
	expect := func(step string, want shard.View) {
		t.Helper()
		if got := known(); got != want {
			t.Errorf("%s: %+v is confirmed, want %+v", step, got, want)
		}
	}

	w.said(first, one, time.Now(), outboxRow{})
	expect("nobody is listened to", shard.View{})
	w.listen(first)
	w.repeated(first, one, time.Now())
	expect("a write does not tell the whole view", shard.View{})
	w.said(first, one, time.Now(), outboxRow{})
	expect("the speaker", one)

	asked := time.Now()
	w.forget()
	w.said(first, two, asked, outboxRow{})
	w.repeated(first, one, asked)
	expect("asked before the machine slept", shard.View{})
	w.repeated(first, one, time.Now())
	expect("a write by the view known", one)
	w.said(first, two, time.Now(), outboxRow{})
	w.said(first, one, time.Now(), outboxRow{})
	expect("views only rise", two)

	w.listen(second)
	expect("the same database by other connections", two)
	w.unlearn(first)
	w.said(second, two, time.Now(), outboxRow{})
	expect("the former pool", shard.View{})
	w.said(first, one, time.Now(), outboxRow{})
	expect("another database", one)

	if want := []shard.View{one, two, one}; len(announced) != 3 || announced[0] != want[0] || announced[1] != want[1] || announced[2] != want[2] {
		t.Errorf("announced %v, want %v", announced, want)
	}
}
