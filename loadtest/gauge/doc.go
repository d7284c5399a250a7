// Package gauge is what the programs that measure ringside have in common: figures that are made of the ratios of rounds, the table of
// them, and a client connection that costs little itself.
package gauge
