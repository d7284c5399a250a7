// Package childproc runs servers as child processes that do not outlive the program which started them.
//
// It is the common ground of realredis, realpg and of whatever else starts a real server for a test or for the demo.
//
// Invariants:
//
//	C1  A child belongs to one goroutine that stays on one OS thread until the child has ended. On Linux the kernel signals the
//	    child when that thread dies (Pdeathsig is tied to the thread, not to the process), so the thread must not be one that
//	    the Go scheduler may retire. On other systems a child of a program that is killed with SIGKILL is left behind.
//	C2  Each child has a process group of its own: an interrupt typed at the terminal reaches the program, which then stops its
//	    children in order.
//	C3  Every wait is bounded: Stop and Kill end with SIGKILL and a wait for the kernel to confirm.
//
// It imports nothing of ringside, and neither testing nor any protocol: what a server must answer before it counts as started
// is the business of the packages above it.
package childproc
