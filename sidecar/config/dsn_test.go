package config

import "testing"

func TestAConnectionStringIsChecked(t *testing.T) {
	for _, dsn := range []string{"postgres://u@h:x/app", "postgres://u@a:5432,b:x/app", "postgres://u@a,[::1/app", "mysql://h/app", "h"} {
		if CheckDSN(dsn) == nil {
			t.Errorf("%s passes", dsn)
		}
	}
}

func TestBareDropsPasswords(t *testing.T) {
	for _, c := range []struct{ dsn, want string }{
		{"postgres://u:p@h:5432/app?sslmode=disable", "postgres://u@h:5432/app?sslmode=disable"},
		{"postgresql://h/app?password=p&application_name=x&sslpassword=q", "postgresql://h/app?application_name=x"},
		{"postgres://u@h/app", "postgres://u@h/app"},
		{"host=h password='a b' user=u", "host=h  user=u"},
		{"host=h sslpassword=x", "host=h"},
		{"postgres://u:p@a:5432,b,[::1]:5433/app?target_session_attrs=read-write", "postgres://u@a:5432,b,[::1]:5433/app?target_session_attrs=read-write"},
		{"host=a,b port=5432,5433 password=p", "host=a,b port=5432,5433"},
		{"", ""},
	} {
		if got := DSN(c.dsn).Bare(); got != c.want {
			t.Errorf("%s: %q, want %q", DSN(c.dsn), got, c.want)
		}
		if err := CheckDSN(c.dsn); err != nil && c.dsn != "" {
			t.Errorf("%s: %v", DSN(c.dsn), err)
		}
		if c.want != "" && (DSN(c.want).HasPassword() || DSN(c.want).String() != c.want) {
			t.Errorf("%s: shown as %s", c.want, DSN(c.want))
		}
	}
}
