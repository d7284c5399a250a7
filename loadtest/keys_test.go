package loadtest

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestParseKeys(t *testing.T) {
	k, err := ParseKeys("user:{id}:x", 10)
	if err != nil || k.Name(42) != "user:42:x" {
		t.Errorf("%+v, %v", k, err)
	}
	for _, bad := range []string{"", "user", "user:{}", "user:{id", "user:id}", "{a}{b}", "{a{b}"} {
		if got, err := ParseKeys(bad, 10); err == nil {
			t.Errorf("%q is accepted as %+v", bad, got)
		}
	}
}

// Each number comes as often as the law says, within five standard deviations.
func TestDistribution(t *testing.T) {
	const draws = 400_000
	for _, exponent := range []float64{0, 0.5, 0.99, 1, 1.5} {
		for _, n := range []int{1, 2, 50} {
			d := newDistribution(n, exponent)
			r := rand.New(rand.NewPCG(3, 4))
			counts := make([]float64, n+1)
			for range draws {
				k := d.draw(r)
				if k < 1 || int(k) > n {
					t.Fatalf("exponent %v: %d drawn, allowed are 1 to %d", exponent, k, n)
				}
				counts[k]++
			}
			sum := 0.0
			for k := 1; k <= n; k++ {
				sum += math.Pow(float64(k), -exponent)
			}
			for k := 1; k <= n; k++ {
				p := math.Pow(float64(k), -exponent) / sum
				if off := math.Abs(counts[k] - draws*p); off > 5*math.Sqrt(draws*p*(1-p))+1e-9 {
					t.Errorf("exponent %v: %d of %d came %.0f times, want about %.0f", exponent, k, n, counts[k], draws*p)
				}
			}
		}
	}
}

func TestDistributionOfManyKeysStaysInRange(t *testing.T) {
	d := newDistribution(maxKeys, 0.99)
	r := rand.New(rand.NewPCG(5, 6))
	first := 0
	for range 100_000 {
		k := d.draw(r)
		if k < 1 || k > maxKeys {
			t.Fatalf("%d drawn", k)
		}
		if k == 1 {
			first++
		}
	}
	if first < 4000 || first > 7500 { // about 5.9%
		t.Errorf("the first key came %d times of 100000", first)
	}
}
