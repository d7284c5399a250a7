package config

import "testing"

func TestBareDropsPasswords(t *testing.T) {
	for _, c := range []struct{ dsn, want string }{
		{"postgres://u:p@h:5432/app?sslmode=disable", "postgres://u@h:5432/app?sslmode=disable"},
		{"postgresql://h/app?password=p&application_name=x&sslpassword=q", "postgresql://h/app?application_name=x"},
		{"postgres://u@h/app", "postgres://u@h/app"},
		{"host=h password='a b' user=u", "host=h  user=u"},
		{"host=h sslpassword=x", "host=h"},
		{"", ""},
	} {
		if got := DSN(c.dsn).Bare(); got != c.want {
			t.Errorf("%s: %q, want %q", DSN(c.dsn), got, c.want)
		}
	}
}
