package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strings"
)

// masked stands for a secret wherever one would be printed.
const masked = "***"

// Secret is text that must not be printed: every formatting verb, and JSON and YAML, show it masked. string(s) is the secret.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// Format masks for every verb; %x and %#v would print the bytes otherwise.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText is what encoders use.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// DSN is a PostgreSQL connection string. It prints itself with its passwords masked. string(d) is the whole.
type DSN string

func (d DSN) String() string { return maskDSN(string(d)) }

// Format masks for every verb.
func (d DSN) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(d.String())) }

// MarshalText is what encoders use.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

var (
	uriScheme   = regexp.MustCompile(`^postgres(ql)?://`)
	uriPassword = regexp.MustCompile(`(?i)([?&](?:ssl)?password=)[^&]*`)
	// keyValue is one setting of the other form: key = value, or key = 'quoted \' value'.
	keyValue = regexp.MustCompile(`([A-Za-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)`)
)

// maskDSN masks passwords. Of a text that it does not understand, it shows nothing.
func maskDSN(dsn string) string {
	switch {
	case dsn == "":
		return ""
	case uriScheme.MatchString(dsn):
		return maskURI(dsn)
	case checkKeyValues(dsn) == nil:
		return keyValue.ReplaceAllStringFunc(dsn, func(setting string) string {
			key, _, _ := strings.Cut(setting, "=")
			if strings.Contains(strings.ToLower(key), "password") {
				return key + "=" + masked
			}
			return setting
		})
	}
	return masked
}

// maskURI masks what stands between the first colon and the @ of the authority. When the URI cannot be taken apart for certain (an
// unescaped / ? # or @ in the password), everything up to the last @ counts as the password.
func maskURI(dsn string) string {
	scheme := uriScheme.FindString(dsn)
	rest := dsn[len(scheme):]
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	_, err := parseURI(dsn)
	at := strings.LastIndexByte(authority, '@')
	if err != nil || at < 0 || strings.Count(rest, "@") > 1 {
		at = strings.LastIndexByte(rest, '@')
	}
	if at >= 0 {
		if user, _, ok := strings.Cut(rest[:at], ":"); ok {
			rest = user + ":" + masked + rest[at:]
		}
	}
	return scheme + uriPassword.ReplaceAllString(rest, "${1}"+masked)
}

// parseURI takes a connection URI apart. Unlike other URIs it may list several hosts, each with its own port or none: u.Host is the whole list.
func parseURI(dsn string) (u *url.URL, err error) {
	begin := len(uriScheme.FindString(dsn))
	end := len(dsn)
	if n := strings.IndexAny(dsn[begin:], "/?#"); n >= 0 {
		end = begin + n
	}
	begin += strings.LastIndexByte(dsn[begin:end], '@') + 1
	hosts := dsn[begin:end]
	for host := range strings.SplitSeq(hosts, ",") {
		if u, err = url.Parse(dsn[:begin] + host + dsn[end:]); err != nil {
			return nil, err
		}
	}
	u.Host = hosts
	return u, nil
}

// checkDSN says whether text has the form of a connection string, without quoting it. What it names is for the database driver to check.
func checkDSN(dsn string) error {
	const rule = "must be a PostgreSQL connection string, such as postgres://user@host:5432/database"
	if uriScheme.MatchString(dsn) {
		if _, err := parseURI(dsn); err != nil {
			return errors.New(rule + "; special characters in a password are written as %XX")
		}
		return nil
	}
	if checkKeyValues(dsn) != nil {
		return errors.New(rule + ", or \"host=... dbname=...\"")
	}
	return nil
}

func checkKeyValues(dsn string) error {
	if !keyValue.MatchString(dsn) || strings.TrimSpace(keyValue.ReplaceAllString(dsn, "")) != "" {
		return errors.New("is no list of key=value pairs")
	}
	return nil
}

// maxSecret bounds a file that holds a secret, in bytes.
const maxSecret = 64 << 10

// resolve follows env:NAME and file:PATH; other text is the secret itself. Errors name the reference, never what it led to.
func (d *decoder) resolve(text string) (string, error) {
	if name, ok := strings.CutPrefix(text, "env:"); ok {
		value := d.machine.getenv(name)
		if value == "" {
			return "", fmt.Errorf("refers to the environment variable %s, which is not set or empty", name)
		}
		return value, nil
	}
	path, ok := strings.CutPrefix(text, "file:")
	if !ok {
		return text, nil
	}
	content, err := readFile(d.relative(path), maxSecret)
	if err != nil {
		if pathError, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathError.Err
		}
		return "", fmt.Errorf("refers to the file %s: %w", path, err)
	}
	// Editors and echo end a file with a newline, which nobody means to be part of the secret.
	value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if value == "" {
		return "", fmt.Errorf("refers to the file %s, which is empty", path)
	}
	return value, nil
}
