//go:build !race

package ring

// How many fleets or steps the expensive tests try.
const (
	figureSets  = 12
	weightSets  = 12
	balanceSets = 60
	planSteps   = 200
	twinCases   = 16
)
