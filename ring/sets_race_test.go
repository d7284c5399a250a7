//go:build race

package ring

// Under the race detector a placement takes several times as long: fewer fleets, the same checks.
const (
	figureSets  = 2
	balanceSets = 6
	planSteps   = 40
	twinCases   = 4
)
