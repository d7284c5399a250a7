// Package simulate works out on paper what a change of the fleet moves, for ringside's placement and for the schemes that people come from:
// modulo, a Karger ring with 160 points per server, and fixed logical buckets. `ringside simulate` prints it.
//
// It computes only: it imports ring and opens no socket. Only the program depends on it.
package simulate
