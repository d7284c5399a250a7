// Package resp is the Redis protocol without sockets: a parser of requests, a scanner of replies, writers of both, and the command
// table of Redis 7.0.
//
// Promises it keeps:
//
//   - P6: whatever a peer sends, memory and work are bounded: every length is checked against a limit before anything is set
//     aside for it, nesting has a limit, and input that arrives in pieces is looked at a constant number of times (a frame of n
//     bytes costs O(n) however it is cut).
//   - P8: a frame is never guessed. Broken framing is a *ProtocolError in Redis's own words; an unknown command, subcommand or number
//     of arguments is a Refusal in Redis's own words, and the connection can live on.
//
// Invariants:
//
//   - The same bytes give the same commands and the same errors however they are cut into pieces.
//   - A request is framed exactly as redis-server frames it, so that a frame passed on (Command.Raw) cannot mean one thing here
//     and another upstream.
//   - Parser.Next, Scanner.Next, Lookup and the Append functions do not allocate in the steady state.
//   - No Append function lets a line break into a one-line reply.
//
// Nothing here locks, blocks, reads a clock or starts a goroutine. Parser and Scanner belong to one connection and are not safe for
// concurrent use; everything else is pure, and the command table is never written to.
//
// It imports the standard library only: the proxy, the admin pages, load generators and tests all speak the protocol, and none of
// them may draw another in by it.
package resp
