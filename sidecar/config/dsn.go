package config

import (
	"net/url"
	"slices"
	"strings"
)

// CheckDSN says what is wrong with a connection string that does not come from a file.
func CheckDSN(dsn string) error { return checkDSN(dsn) }

// HasPassword reports whether the connection string carries a password.
func (d DSN) HasPassword() bool {
	if !uriScheme.MatchString(string(d)) {
		return slices.ContainsFunc(keyValue.FindAllString(string(d), -1), func(setting string) bool {
			key, _, _ := strings.Cut(setting, "=")
			return strings.Contains(strings.ToLower(key), "password")
		})
	}
	u, err := parseURI(string(d))
	if err != nil {
		return true // it would not have passed the checks; trust nothing of it
	}
	_, has := u.User.Password()
	return has || strings.Contains(strings.ToLower(u.RawQuery), "password")
}

// Bare returns the connection string without its passwords: what may stand in the topology, which travels.
func (d DSN) Bare() string {
	dsn := string(d)
	if !uriScheme.MatchString(dsn) {
		return strings.TrimSpace(keyValue.ReplaceAllStringFunc(dsn, func(setting string) string {
			key, _, _ := strings.Cut(setting, "=")
			if strings.Contains(strings.ToLower(key), "password") {
				return ""
			}
			return setting
		}))
	}
	u, err := parseURI(dsn)
	if err != nil {
		return "" // it would not have passed the checks; show nothing
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	var kept []string
	for _, pair := range strings.Split(u.RawQuery, "&") {
		key, _, _ := strings.Cut(pair, "=")
		if pair != "" && !strings.Contains(strings.ToLower(key), "password") {
			kept = append(kept, pair)
		}
	}
	u.RawQuery = strings.Join(kept, "&")
	return u.String()
}
