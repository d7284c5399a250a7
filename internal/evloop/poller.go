package evloop

// interest is what a descriptor is watched for.
type interest uint8

const (
	wantRead interest = 1 << iota
	wantWrite
)

// readiness is what the poller says of a descriptor.
type readiness uint8

const (
	readyRead readiness = 1 << iota
	readyWrite
	readyHangup // both directions have ended; reported whether watched for or not (epoll only)
	readyError  // the socket has failed; likewise
)

// event is one report. gen is what the descriptor was registered with, so that a report for a predecessor of the same number is
// known as such.
type event struct {
	fd    int
	gen   uint32
	ready readiness
}
