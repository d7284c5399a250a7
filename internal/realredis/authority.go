package realredis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority makes certificates that are trusted by whoever trusts CA.
type Authority struct {
	CA string // PEM file of its own certificate

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Certificate is a certificate and its key, as PEM files.
type Certificate struct{ Cert, Key string }

// certificateLife is how long the certificates hold, from a little before now.
const certificateLife = 24 * time.Hour

// NewAuthority returns an authority that keeps its files in dir, under its name.
func NewAuthority(dir, name string) (*Authority, error) {
	a := &Authority{dir: dir}
	made, err := a.make(name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	if err != nil {
		return nil, err
	}
	a.CA = made.Cert
	return a, nil
}

// In returns the same authority, which keeps what it issues in another folder.
func (a *Authority) In(dir string) *Authority {
	other := *a
	other.dir = dir
	return &other
}

// Issue returns a certificate for these host names and addresses, good for servers and clients.
func (a *Authority) Issue(name string, hosts ...string) (Certificate, error) {
	t := &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return a.make(name, t)
}

// make signs a certificate and writes its files. The first one is the authority's own.
func (a *Authority) make(name string, template *x509.Certificate) (Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return Certificate{}, err
	}
	begin := time.Now().Add(-time.Hour)
	template.SerialNumber, template.Subject = serial, pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = begin, begin.Add(certificateLife)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Certificate{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	if a.cert == nil {
		a.key = key
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return Certificate{}, err
		}
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Certificate{}, err
	}
	made := Certificate{Cert: filepath.Join(a.dir, name+".pem"), Key: filepath.Join(a.dir, name+".key")}
	if err := writePEM(made.Cert, "CERTIFICATE", der, 0o644); err != nil {
		return Certificate{}, err
	}
	return made, writePEM(made.Key, "PRIVATE KEY", secret, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
