package keyspace

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
)

// isIntChar reports whether c occurs in texts that somebody may have meant as a number. Such a text that is not canonical is refused
// rather than taken for a plain key, so that no row gets a second, uncached, unsharded life under "user:042".
func isIntChar(c byte) bool {
	switch c {
	case '+', '-', ' ', '.', '_':
		return true
	}
	return isDigit(c)
}

// checkInt does without strconv, which would need a string.
func checkInt(value []byte) verdict {
	if isShortNumber(value) {
		return canonical
	}
	digits := false
	for _, c := range value {
		if !isIntChar(c) {
			return foreign
		}
		digits = digits || isDigit(c)
	}
	if !digits {
		return foreign
	}
	magnitude, limit := value, "9223372036854775807"
	if value[0] == '-' {
		magnitude, limit = value[1:], "9223372036854775808"
	}
	for _, c := range magnitude {
		if !isDigit(c) {
			return misspelt
		}
	}
	switch {
	case magnitude[0] == '0':
		if len(value) > 1 {
			return misspelt // leading zero, or -0
		}
	case len(magnitude) > len(limit), len(magnitude) == len(limit) && string(magnitude) > limit:
		return misspelt
	}
	return canonical
}

// isShortNumber reports whether value is a number above 0 that fits 64 bits whatever its digits are, as nearly all ids are.
func isShortNumber(value []byte) bool {
	const digits = 18
	if len(value) == 0 || len(value) > digits || value[0] == '0' {
		return false
	}
	for _, c := range value {
		if c-'0' > 9 {
			return false
		}
	}
	return true
}

// explainInt is called for misspelt texts only.
func explainInt(value, shown []byte) string {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	switch {
	case err == nil:
		return fmt.Sprintf("is %q: write %d", shown, n)
	case bytes.IndexFunc(value, func(r rune) bool { return r != '-' && (r < '0' || r > '9') }) < 0 && bytes.LastIndexByte(value, '-') <= 0:
		return fmt.Sprintf("is %q, which does not fit 64 bits", shown)
	}
	return fmt.Sprintf("is %q: write a whole number, digits only, no leading zero", shown)
}

const uuidLen = 36 // 32 digits and 4 hyphens

func isUUIDHyphen(i int) bool { return i == 8 || i == 13 || i == 18 || i == 23 }

func checkUUID(value []byte) verdict {
	if isCanonicalUUID(value) {
		return canonical
	}
	if canonicalUUID(value) != "" {
		return misspelt
	}
	return foreign
}

func isCanonicalUUID(value []byte) bool {
	if len(value) != uuidLen {
		return false
	}
	for i, c := range value {
		if isUUIDHyphen(i) {
			if c != '-' {
				return false
			}
		} else if !isLowerHex(c) {
			return false
		}
	}
	return true
}

// maxUUIDLen bounds the spellings that are recognised: a prefix, braces, and a hyphen after every two digits.
const maxUUIDLen = 64

// canonicalUUID returns the canonical text of a uuid in any usual spelling (upper case, braces, other hyphens or none, urn:uuid:),
// or "" if value is no uuid.
func canonicalUUID(value []byte) string {
	const urn = "urn:uuid:"
	if len(value) > maxUUIDLen {
		return ""
	}
	if len(value) > len(urn) && bytes.EqualFold(value[:len(urn)], []byte(urn)) {
		value = value[len(urn):]
	}
	if inner, ok := bytes.CutPrefix(value, []byte("{")); ok {
		value = bytes.TrimSuffix(inner, []byte("}"))
	}
	var digits [32]byte
	n := 0
	for _, c := range value {
		switch {
		case c == '-':
			continue
		case !isLowerHex(c|0x20) || c < '0', n == len(digits):
			return ""
		}
		digits[n] = c
		n++
	}
	var raw [16]byte
	if n != len(digits) {
		return ""
	}
	if _, err := hex.Decode(raw[:], digits[:]); err != nil {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}
