// Package handover carries plain keys from the cache servers that have lost their vnodes (topology.Handover) to the new owners, while they are used.
//
// # Words
//
// Source: the former owner, h.From. New owner: who owns the vnode now. Marker: the key rs:ring on each cache server (topology.Marker), which says
// up to which epoch the server has heard, and how far each hand-over from it is: open, held, handed. Caller: a connection by which a sidecar
// sends plain keys; its name says by which topology, and which hand-overs it has seen held (topology.Caller). Carrier: whoever
// carries one key. Driver: whoever sees a whole hand-over to its end.
//
// # The hand-over
//
// Sidecars ask the marker; the server on which the keys are decides. One driver at a time, by a lease on the source (rs:driver:<since>), does this:
//
//	1  marker: the epoch, and open                   who connects from now on has the topology, or does not use the server
//	2  wait until no caller is of an older epoch     after 3 s their connections are ended
//	   markers of the new owners: the epoch
//	3  marker: held                                  who sees it holds commands on these vnodes back, and says so by its name
//	4  wait until all callers have said so           after 300 ms their connections are ended
//	5  marker: handed                                commands go to the new owner, for keys that are settled
//	6  SCAN the source again and again: carry what was lost, remove what the server has no business with
//	7  nothing was found: carried; the topology may drop the hand-over
//
// A name that is set in the stream of commands vouches for all that was sent before it: that has been executed. A connection that is ended has nothing
// left that could be. So from step 5 on nobody writes lost keys to the source, and all that happens to one there is that it goes away.
//
// Each step is repeatable and the marker only goes forward, so that drivers may die anywhere, and be two by mistake.
//
// # Carrying a key
//
//	lease     new owner  SET rs:carry:<key> token NX PX             nobody else has it, else later
//	dump      source     DUMP, PTTL                                 absent: release
//	restore   new owner  if the lease is ours and no key is there: RESTORE, with the time at which its life ends
//	remove    source     UNLINK
//	release   new owner  UNLINK rs:carry:<key>                      whoever has it
//
// # Settling
//
// A command on a key of a lost vnode goes to the new owner only when the key is settled there. Who is to send it looks at the source first (EXISTS):
//
//	not there   remove rs:carry:<key> on the new owner (the same pipeline as the command, in front of it, will do): settled
//	there       Carry: settled when it returns nil
//
// What is settled stays so.
//
// # Invariants
//
//	H1  No key is lost: it is removed from the source only after it was on the new owner.
//	H2  None comes back: once a key is settled, no value from the source gets to the new owner any more, whichever carriers are still under way.
//	H3  Whatever was decided by an earlier topology can change nothing on a server that has heard of a later one.
//	H4  An expired key is not put back, and no life gets longer.
//	H5  Every wait, batch and queue has a bound.
//
// Exceptions to H1: keys bigger than Config.MaxValue, or of a format that the new owner does not know, are dropped, with a warning and a metric;
// and a cache server may evict what it has.
//
// # Why it is safe
//
// H2 is the hard one. Carriers stop anywhere, for any time: one may have read a value, lost its lease by time, and go on after the key was carried by
// another, settled and deleted. So a value is put only under a lease that was taken before it was read, and settling ends all leases, after the key
// was seen to be away from the source: a carrier with an older lease is refused, one with a newer lease finds nothing to read. That is
// why a release removes any lease, not only our own, and why who finds nothing on the source must remove it too: another carrier may have read the
// key just before it was removed, and hold the lease. To end a lease that somebody needs costs him one more try.
//
// H4: PTTL counts from the dump, which comes after the lease, and the lease tells the new owner's time. That time plus the PTTL is no later than the end
// of its life on the source, and RESTORE of what has ended puts nothing.
//
// H3: dump, restore and remove look at the marker of their server: it must not be of a later epoch than the carrier's topology, and the source's must say
// handed. When a vnode is handed back, the marker of its new owner, which may be the source of before, is raised before step 3. Where
// a vnode comes back because its owner went down there is no such order: Run marks all servers at once (markAll), and sidecars do
// not use the vnode for a second (topology.Topology.Lost).
//
// explore_test.go goes through all orders of these steps in a small world, and finds a wrong read as soon as one of the rules is left out.
//
// What it rests on: markers are not evicted. They are without expiry, so only servers with an allkeys policy could, and sidecars ask for them all the time
// while it matters. A driver puts a lost marker back within a second; until then keys are not carried (errors, not losses).
//
// # Making a server ready
//
// Prepare empties a server that joins, comes back or was restarted, and keeps older topologies out. See there for its order.
//
// # Imports
//
// Floor 2: it imports ring, sidecar/topology, cache (connections, names, errors) and go-redis. It knows no client, no row and no shard.
package handover
