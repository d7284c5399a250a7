//go:build !race

package systemtest

const raceDetector = false

// raceSlack is 1 with the race detector.
const raceSlack = 0
