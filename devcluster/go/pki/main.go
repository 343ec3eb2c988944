// Command pki issues a certificate from a small certificate authority kept in a directory.
//
//	pki -dir DIR -name NAME [-common-name CN] [-organization ORG] [-hosts 127.0.0.1,localhost]
//
// The authority (ca.crt, ca.key) is made on first use; NAME.crt and NAME.key are written beside it. It exists so that
// a development cluster has verified TLS on a machine without openssl.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const lifetime = 365 * 24 * time.Hour

// identity is a certificate with the key it was made for.
type identity struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func main() {
	dir := flag.String("dir", ".", "directory of the authority and of what it issues")
	name := flag.String("name", "", "base name of the files to write")
	commonName := flag.String("common-name", "", "subject common name; NAME when empty")
	organization := flag.String("organization", "", "subject organization, the user's group in Kubernetes")
	hosts := flag.String("hosts", "", "comma-separated addresses and DNS names the certificate is valid for")
	flag.Parse()
	if *name == "" || *name == "ca" {
		fail(errors.New("-name is needed, and must not be \"ca\""))
	}
	if *commonName == "" {
		*commonName = *name
	}
	authority, err := loadOrCreateAuthority(*dir)
	if err == nil {
		err = issue(*dir, *name, leafTemplate(*commonName, *organization, *hosts), authority)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "pki:", err)
	os.Exit(1)
}

func loadOrCreateAuthority(dir string) (*identity, error) {
	authority, err := load(dir, "ca")
	if !errors.Is(err, fs.ErrNotExist) {
		return authority, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "devcluster authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if err := issue(dir, "ca", template, nil); err != nil {
		return nil, err
	}
	return load(dir, "ca")
}

func leafTemplate(commonName, organization, hosts string) *x509.Certificate {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if organization != "" {
		template.Subject.Organization = []string{organization}
	}
	for _, host := range strings.FieldsFunc(hosts, func(r rune) bool { return r == ',' }) {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}

// issue signs template with the authority, or with its own key when there is none, and writes both files.
func issue(dir, name string, template *x509.Certificate, authority *identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	// A clock that was set back a little must not refuse a fresh certificate.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.Add(lifetime)
	parent, signer := template, key
	if authority != nil {
		parent, signer = authority.certificate, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", keyDER, 0o600); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der, 0o644)
}

func load(dir, name string) (*identity, error) {
	certificateDER, err := readPEM(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, err
	}
	keyDER, err := readPEM(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(certificateDER)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, err
	}
	return &identity{certificate, key}, nil
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

func readPEM(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", path)
	}
	return block.Bytes, nil
}
