package ring

// Counts returns how many vnodes of the table each of n servers owns. Entries outside 0..n-1, such as None, are not counted.
func Counts(table []uint16, n int) []int {
	counts := make([]int, n)
	for _, owner := range table {
		if int(owner) < n {
			counts[owner]++
		}
	}
	return counts
}

// Share returns the part of the ring, 0 to 1, that so many vnodes are. It is for people: no placement depends on it.
func Share(vnodes int) float64 { return float64(vnodes) / Vnodes }
