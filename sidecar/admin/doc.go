// Package admin is what operators see of a sidecar: the ring page, the same as JSON, the members, the pools, metrics and health.
//
// Everything shown follows from one topology at a time, so no answer mixes two epochs; /ring as JSON is made of the topology alone, so it is
// the same on every sidecar, byte for byte. Reads are open to loopback addresses and need the token from anywhere else; every
// change is a POST with the token. No answer ever carries a secret.
//
// It imports ring, shard, keyspace and topology. It must not import membership or what speaks to PostgreSQL or Redis: it is given functions.
package admin
