package config

import (
	"fmt"
	"slices"
	"strings"
)

// unknownKey says what is wrong with a key and which was probably meant. A "key" without a value may be a value that lost its key,
// perhaps a secret ("{user: x, hunter2}", "{password:hunter2}"), so it is not printed.
func unknownKey(key string, valueless bool, path string, known []string) string {
	in := ""
	if path != "" {
		in = " in " + path
	}
	if valueless {
		if before, _, ok := strings.Cut(key, ":"); ok && slices.Contains(known, before) {
			return fmt.Sprintf("write a space after \"%s:\"%s", before, in)
		}
		return fmt.Sprintf("unknown key without a value%s (known: %s)", in, strings.Join(known, ", "))
	}
	if near := nearest(key, known); near != "" {
		return fmt.Sprintf("unknown key %q%s (did you mean %q?)", key, in, near)
	}
	return fmt.Sprintf("unknown key %q%s (known: %s)", key, in, strings.Join(known, ", "))
}

// nearest returns the known word that a misspelt one probably stands for, or "".
func nearest(word string, known []string) string {
	best, bestDistance := "", max(1, min(len(word)/2, 3))+1
	plain := strings.NewReplacer("-", "_").Replace(strings.ToLower(word))
	for _, k := range known {
		if d := distance(plain, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between two words.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
