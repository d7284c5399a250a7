package loadtest

import (
	"syscall"
	"time"
)

// pause sleeps to within tens of microseconds, where time.Sleep of an idle program takes a whole millisecond. It may return early.
func pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // interrupted: the caller looks at the clock again
}
