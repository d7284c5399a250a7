// Package sidecar puts one ringside process together: which part is given what, what starts and stops when, and what
// happens to the topology.
//
// Run's order. First a topology: the catalog's, else the one kept on disk, else a new one made from the configuration. Then the
// shards are set up, then gossip, pools and the feed run, and when the first topology is acted by everywhere here, clients are let in.
// Stopping goes the other way round: no new clients, what is under way ends, gossip says goodbye, pools close.
//
// The feed is the only goroutine that changes the topology that this sidecar acts by, and the only one that brings shards to
// it; see feed.go. Promises P3 and P4 rest on rows.go and on the shards' own fence, not on the feed being quick.
//
// Only cmd and tests import this package.
package sidecar
