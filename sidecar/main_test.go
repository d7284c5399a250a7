package sidecar

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ringside/internal/realpg"
)

func TestMain(m *testing.M) {
	code := realpg.Main(m).Run()
	if code == 0 {
		// Once a second a pool of go-redis whose server was down looks whether it was closed meanwhile.
		var err error
		for range 100 {
			if err = goleak.Find(); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
