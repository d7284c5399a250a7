package sidecar

import (
	"testing"

	"go.uber.org/goleak"

	"ringside/internal/realpg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(realpg.Main(m)) }
