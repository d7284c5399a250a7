package resp

import "fmt"

// Limits bound what one client may ask for. They are read by the parsers of many connections: do not change them while in use.
type Limits struct {
	// MaxBulk is the longest argument, in bytes.
	MaxBulk int
	// MaxElements is the largest number of arguments in one command.
	MaxElements int
	// MaxInline is the longest inline command and the longest header line, in bytes without the line break.
	MaxInline int
	// MaxRequest is the longest command as a whole, in bytes with all framing.
	MaxRequest int
}

// DefaultLimits returns 64 MiB per argument, 1,048,576 arguments, 64 KiB inline (as Redis), 128 MiB per command.
func DefaultLimits() Limits {
	return Limits{MaxBulk: 64 << 20, MaxElements: 1 << 20, MaxInline: 64 << 10, MaxRequest: 128 << 20}
}

// Limit says which of the limits of a request was exceeded.
type Limit uint8

// The limits of a request. Unauthenticated is Redis's own for who has not given the password yet: 10 arguments of 16 KiB.
const (
	NoLimit Limit = iota
	BulkLimit
	ElementsLimit
	InlineLimit
	RequestLimit
	UnauthenticatedLimit
	limits
)

// AllLimits returns them, without NoLimit.
func AllLimits() []Limit {
	var all []Limit
	for l := NoLimit + 1; l < limits; l++ {
		all = append(all, l)
	}
	return all
}

func (l Limit) String() string {
	return [limits]string{"none", "bulk", "elements", "inline", "request", "unauthenticated"}[l]
}

// Validate says which limit makes no sense.
func (l Limits) Validate() error {
	for _, limit := range []struct {
		name   string
		n      int
		lowest int
	}{
		{"bulk", l.MaxBulk, 1}, {"elements", l.MaxElements, 1}, {"inline", l.MaxInline, 64}, {"request", l.MaxRequest, 64},
	} {
		if limit.n < limit.lowest {
			return fmt.Errorf("limit %s is %d, must be at least %d", limit.name, limit.n, limit.lowest)
		}
	}
	if l.MaxBulk > l.MaxRequest {
		return fmt.Errorf("limit bulk is %d, more than limit request, %d: no such argument could be sent", l.MaxBulk, l.MaxRequest)
	}
	return nil
}
