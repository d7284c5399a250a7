//go:build race

package membership

// crowded is how many times smaller the large tests are: the race detector makes everything many times slower.
const crowded = 3
