// Package realpg runs real PostgreSQL servers on 127.0.0.1, for tests and for the demo.
//
// A server has a superuser "postgres", a role "ringside" (superuser too: it installs triggers and reads the write-ahead log) and a
// database "app" that ringside owns; local connections need no password. wal_level is logical. It can be killed as a machine
// crash would, paused with all its sessions, and restarted under the same address. It ends with the program (see childproc, C1).
//
// Invariants:
//
//	R1  Start and Restart return only when this very postmaster accepts connections: its own postmaster.pid says so, so that a
//	    stranger on the same port is never mistaken for it.
//	R2  A data directory is complete or absent: initdb, or the copy of what it made once for many tests, runs beside it and the result is renamed
//	    into place.
//	R3  PostgreSQL refuses to run as root. For root it runs as the user postgres, who gets the data directory, and a search bit
//	    on the directories above it only where that can surprise nobody (see account.go).
//	R4  Databases of one test are dropped at its end, with their replication slots; the server that tests share is stopped by
//	    Main. That server is the only process-wide state of this package.
//
// It imports nothing of ringside but childproc: the schema that ringside keeps on a shard is installed by those who own it.
package realpg
