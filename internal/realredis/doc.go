// Package realredis runs real Redis servers on 127.0.0.1, for tests and for the demo.
//
// A server is started empty and without persistence unless its arguments say otherwise. It can be killed, paused and restarted
// under the same address, which is what most tests of failure need. It ends with the program (see childproc, C1).
//
// Invariants:
//
//	R1  Start and Restart return only when this very process answers on the port, and has loaded what it had kept: the process id in
//	    INFO is compared, so that a stranger on the same port is an error and never mistaken for the server.
//	R2  A temporary directory is removed by Stop.
//
// It speaks the few bytes of protocol that it needs itself: it must not import resp or a client library, which are what the
// tests that use it check.
package realredis
