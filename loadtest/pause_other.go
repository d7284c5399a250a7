//go:build !linux

package loadtest

import "time"

func pause(d time.Duration) { time.Sleep(d) }
