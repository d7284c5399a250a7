// Package realbrowser runs a real Chromium without a window, for tests that look at pages as people do.
//
// It speaks the browser's own protocol (https://chromedevtools.github.io/devtools-protocol/) over a pair of pipes: no port is opened, and nothing
// but the program that started the browser can drive it.
//
// Invariants:
//
//	B1  Every wait is bounded by Patience.
//	B2  The browser and all processes that it has started are gone when Close returns, and so is its profile. It does not outlive the program (see
//	    childproc, C1).
//	B3  What goes wrong on a page is kept: exceptions, console errors, and what its Content-Security-Policy has stopped. See Tab.Complaints.
//
// It imports nothing of ringside but childproc, and must not: it looks from outside.
package realbrowser
