// Package evloop runs many sockets on one goroutine: epoll on Linux, kqueue on macOS. It knows no protocol.
//
// A Loop works in turns. One turn waits for readiness, reads each ready connection once, runs the tasks and timers that are due,
// and then writes everything that was appended to any connection, with one system call per connection. So a proxy that answers
// fifty clients through one upstream pays for one write to that upstream per turn, however many requests came in.
//
// # Who may call what
//
// A Loop belongs to the goroutine that is inside Run, and everything that hangs on it (Conn, Timer, Listener) with it. Until Run
// is called it belongs to whoever made it, so that listening can fail at start. Methods whose comment says "any goroutine" are
// the exceptions: Submit, Stop, Stats, Accepted.Close. Handlers, tasks and timers run on the loop, must not block, and may call
// anything, also from inside each other's calls: no method of this package calls a Handler back from within a call that the
// Handler made, save Adopt, which calls OnOpen. The only goroutines of a loop's own are those of DialFunc, and Run outlasts them.
//
// # Promises
//
//	E1  A Conn never reaches a descriptor that is not its own. Descriptors are closed at the end of the turn, events carry a
//	    generation, and a Conn that is closed ignores every call.
//	E2  OnClose comes exactly once, at the end of a turn, and is the last call for that Conn.
//	E3  What was written is sent in order or the Conn is closed. What was read and not consumed is presented again.
//	E4  Nothing is unbounded unless the Handler makes it so: reading can be paused, unread output has watermarks, an idle
//	    connection holds no buffer, and buffers of more than 64 KiB are never kept.
//	E5  A peer that has shut down its writing side still gets what it is owed; a last reply arrives before the close.
//	E6  No lack of descriptors, and nothing a peer does, ends the loop.
//	E7  Submit returning true means the task runs; a task that submits itself starves nobody.
//
// They are what promises P6 and P8 of docs/ARCHITECTURE.md stand on.
//
// It imports nothing of ringside: the proxy is tested on it, and it is tested on nothing but sockets.
package evloop
