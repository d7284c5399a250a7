//go:build !race

package membership

const crowded = 1
