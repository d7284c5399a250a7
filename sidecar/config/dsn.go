package config

import (
	"net/url"
	"strings"
)

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
	u, err := url.Parse(dsn)
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
