// Package config reads the configuration file of a sidecar: one YAML document, whose keys docs/CONFIGURATION.md lists.
//
// Everything that can be said about the file without a network is said at once: Load reports all faults of a file, each with
// its line and column, sorted, and never only the first one. Nothing is guessed: an unknown key, a key given twice, a value of
// another type, a second document, an alias or a merge key is a fault, and so is a key without a value.
//
// Secrets (passwords, the token, gossip keys, connection strings) may stand outside the file, as env:NAME or file:PATH. A secret
// is never part of an error, and prints itself masked; so does Masked, the effective configuration as YAML.
//
// The package imports keyspace, to compile the keyspaces where their positions are still known, and nothing else of ringside:
// each component has its own Config, which package sidecar fills from this one. Only sidecar, cmd and tests may import it.
package config
