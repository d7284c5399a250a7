package childproc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime is what all threads of a process, a child or not, have used so far, to the nanosecond. /proc/PID/stat would round it
// to hundredths of a second.
func ProcessorTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED: what the scheduler has counted, user and system together
	clock := int32(^pid)<<3 | scheduler
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("processor time of pid %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
