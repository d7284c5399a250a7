//go:build race

package ring

// Under the race detector a placement takes several times as long: fewer fleets, the same checks.
const (
	figureSets  = 2
	weightSets  = 1
	balanceSets = 3
	planSteps   = 12
	twinCases   = 4
)
