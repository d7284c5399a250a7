// Package heat finds what is used most, from samples, in bounded memory, and how often: rates that forget, with a half-life.
//
// It is pure: time is given to it. Everything in it may be used by many goroutines; whoever is in a hurry samples, and comes here seldom.
package heat
