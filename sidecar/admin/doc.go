// Package admin is what operators see of a sidecar: the ring page, the same as JSON, the members, the pools, metrics and health;
// and how they change the cache servers.
//
// It keeps these invariants:
//
//	I1  No answer mixes two epochs: each is made of one topology.
//	I2  /ring as JSON and /topology are made of the topology alone, so they are the same on every sidecar, byte for byte (promise P1 as
//	    far as it can be seen from outside).
//	I3  Whoever may not read learns nothing, not even which paths there are. Reads are open to programs on this machine, and to whoever
//	    has the token; web pages of others are neither, whatever name they reach this machine by. See admit.
//	I4  No answer carries a secret: what the package is given has none but the token, and that goes nowhere.
//	I5  Everything is bounded (promise P6): connections, headers, the time for a request and for an answer, scrapes at once. A
//	    panic costs one answer.
//	I6  Everything is a read but POST /caches/..., which needs the token, always and in its header, so that no web page can send it; without
//	    a configured token nothing can be changed. Liveness (/healthz) depends on nothing, readiness (/readyz) on what the sidecar says of
//	    itself.
//
// An answer is put together before any of it is sent, has a tag by which clients need not fetch it twice, and is compressed for who
// accepts that. Errors are {"error": "..."} with a fitting status.
//
// The page (folder web) is rendered here, whole: it can be read without scripts. Its program asks for it again, takes over the parts that have
// changed, and draws the owners of the vnodes from /ring as JSON, and the last quarter of an hour from /history. Nothing is loaded from elsewhere.
// Whoever looks costs little: what is dear (placements of previews, moves in the catalog, the owners) is made once for all who look.
//
// It imports ring, shard/keyspace, sidecar/topology, and the rules for names and weights from sidecar/config. It must not import membership or what speaks to PostgreSQL or Redis: it is
// given functions, so that the page can be tested, and looked at, without any of them.
package admin
