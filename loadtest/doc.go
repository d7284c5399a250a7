// Package loadtest loads a cluster from outside, over the wire, checks every value that it reads, and says what came of it, second by second.
// `ringside loadtest` is made of it.
//
// Promises it keeps:
//
//   - The load is open: when a request is due depends on the plan alone (Schedule), never on the answers. Its latency is counted from when it
//     was due, so that the wait behind a slow request counts for all that waited. How late the generator itself was is measured apart.
//   - Every request is accounted for: it was answered, it failed with a kind of error, or it was not sent, which is a kind too.
//   - What is read is judged by the real order of events (ledger): a read must not return an older value than one whose write was acknowledged
//     before the read was sent.
//   - Waits and buffers have bounds: requests on their way (window), bytes not taken (mostUnsent), time of a request (Plan.Timeout).
//
// One goroutine sends (two above some rate), one for each connection reads. Nothing on the way of a request waits for anything but the socket.
//
// It imports nothing of what serves, so that it can load any build of it, or something else, and shares no mistake with it.
package loadtest
