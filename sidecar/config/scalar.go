package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var words = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-zµ]+)$`)

// parseDuration reads 500ms, 10s, 1h30m. For what people write instead it says what they probably mean.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return 0, fmt.Errorf("needs a unit: write %ds, %dms or %dm", n, n, n)
	}
	if m := words.FindStringSubmatch(text); m != nil {
		if unit := durationUnit(m[2]); unit != "" {
			return 0, fmt.Errorf("is no duration: write %s", m[1]+unit)
		}
		if n, err := strconv.Atoi(m[1]); err == nil && strings.HasPrefix(m[2], "d") && n > 0 && n < 10000 {
			return 0, fmt.Errorf("is no duration: write %dh", 24*n)
		}
	}
	return 0, errors.New("is no duration: write a number and a unit, such as 500ms, 10s, 5m or 1h")
}

// durationUnit returns the unit that a word stands for, or "".
func durationUnit(word string) string {
	switch strings.ToLower(word) {
	case "ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds":
		return "ms"
	case "s", "sec", "secs", "second", "seconds":
		return "s"
	case "m", "min", "mins", "minute", "minutes":
		return "m"
	case "h", "hr", "hrs", "hour", "hours":
		return "h"
	}
	return ""
}

// formatDuration is the shortest text that parseDuration reads as d.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Size is a number of bytes, written 64MiB, 512KiB, 1GiB, or as a plain number.
type Size int64

const (
	kib Size = 1 << 10
	mib Size = 1 << 20
	gib Size = 1 << 30
)

// parseSize reads a Size. Redis's own kb, mb and gb are taken too, with Redis's meaning of 1024 and so on.
func parseSize(text string) (Size, error) {
	digits := strings.TrimRight(text, "BKMGibkmg")
	factor := Size(1)
	switch strings.ToLower(text[len(digits):]) {
	case "", "b":
	case "kib", "kb":
		factor = kib
	case "mib", "mb":
		factor = mib
	case "gib", "gb":
		factor = gib
	default:
		digits = ""
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > math.MaxInt64/uint64(factor) || strconv.FormatUint(n, 10) != digits {
		return 0, errors.New("is no size: write a number of bytes, or such as 512KiB, 64MiB, 1GiB")
	}
	return Size(n) * factor, nil
}

func (s Size) String() string {
	for _, unit := range []struct {
		factor Size
		name   string
	}{{gib, "GiB"}, {mib, "MiB"}, {kib, "KiB"}} {
		if s >= unit.factor && s%unit.factor == 0 {
			return fmt.Sprintf("%d%s", s/unit.factor, unit.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
