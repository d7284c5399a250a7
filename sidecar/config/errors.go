package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one fault of a configuration file.
type Error struct {
	File string
	Line int // from 1
	Col  int // from 1; 0 when only the line is known
	Msg  string
	// Cause is what came up later, while the sidecar started; nil for what the file alone shows.
	Cause error
}

// Unwrap returns the cause.
func (e Error) Unwrap() error { return e.Cause }

func (e Error) Error() string {
	if e.Col == 0 {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// Errors are all faults of a file, in the order of the file.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults one by one.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i := range e {
		all[i] = e[i]
	}
	return all
}

// Join makes one error of those that At returned: one fault for each place in the file, since a wrong line is mended once, however many
// shards complain of it. Any other error stays beside them. nil if there is none.
func Join(errs ...error) error {
	var faults Errors
	var others []error
	for _, err := range errs {
		if some, ok := errors.AsType[Errors](err); ok {
			faults = append(faults, some...)
		} else if err != nil {
			others = append(others, err)
		}
	}
	faults = slices.CompactFunc(faults.sorted(), func(a, b Error) bool { return a.Line == b.Line && a.Col == b.Col })
	if len(others) > 0 {
		return errors.Join(append(others, faults.Unwrap()...)...)
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return e
}
