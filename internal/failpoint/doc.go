// Package failpoint lets tests make the real program fail at a named point, leave out a rule, or lose a path.
//
// In the product there is nothing of it: without the build tag failpoint its functions are empty and inlined, so that neither a branch nor a symbol is
// left (the tests of this package look). With the tag the program reads what it is to do from a file that the environment variable names, again
// whenever the file changes; see Orders.
//
// A point is one line where it happens: failpoint.At(failpoint.Committed). It must not be on an event loop, since it may wait.
//
// With the tag it keeps state of the whole process, which nothing else here does: what is to fail is a process, and the points are in packages that
// know nothing of each other.
package failpoint
