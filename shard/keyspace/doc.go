// Package keyspace says which keys are rows, and of which table (promise: a row has exactly one key, its canonical one).
//
// A keyspace is a key pattern such as "order:{tenant}:{id:int}" and what stands behind it. Every key that no table keyspace
// matches is plain. The package is pure: it imports only ring, and opens no socket.
package keyspace
