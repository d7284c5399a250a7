//go:build race

package systemtest

// raceDetector: these tests run with it, so the program is built with it too.
const raceDetector = true

// raceSlack is 1 with the race detector.
const raceSlack = 1
