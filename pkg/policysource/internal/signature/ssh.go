package signature

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	sshBegin = "-----BEGIN SSH SIGNATURE-----"
	sshEnd   = "-----END SSH SIGNATURE-----"
	sshMagic = "SSHSIG"

	namespace  = "git" // of git's signatures
	minRSABits = 2048
)

// envelope is a signature after its magic (OpenSSH's PROTOCOL.sshsig).
type envelope struct {
	Version       uint32
	PublicKey     string
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Signature     string
}

// signedData is the data that the key signs, after the magic.
type signedData struct {
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Hash          string
}

func (v *Verifier) verifySSH(payload, signature []byte, made, now time.Time) (string, error) {
	e, key, sig, err := parseSSH(signature)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	name := ssh.FingerprintSHA256(key)
	// Verify before checking the key: errors about a key only matter if it signed this.
	if err := key.Verify(e.data(payload), sig); err != nil {
		return "", fmt.Errorf("%w: the key %s did not sign this", ErrInvalid, name)
	}
	return v.checkTrusted(key, made, now)
}

// checkTrusted looks for an allowed signer with the key.
func (v *Verifier) checkTrusted(key ssh.PublicKey, made, now time.Time) (string, error) {
	name, raw := ssh.FingerprintSHA256(key), key.Marshal()
	worst := fmt.Errorf("%w: %s", ErrUntrusted, name)
	for _, a := range v.ssh {
		switch {
		case !bytes.Equal(a.key.Marshal(), raw):
		case !a.gitNamespace:
			worst = fmt.Errorf("%w: %s is not trusted with the namespace git", ErrUntrusted, name)
		case !a.before.IsZero() && (!now.Before(a.before) || !made.Before(a.before)):
			worst = fmt.Errorf("%w: %s was valid before %s", ErrExpired, name, a.before.Format(time.RFC3339))
		case !a.after.IsZero() && (now.Before(a.after) || made.Before(a.after)):
			worst = fmt.Errorf("%w: %s is valid after %s", ErrExpired, name, a.after.Format(time.RFC3339))
		default:
			return a.principals + " " + name, nil
		}
	}
	return "", worst
}

// parseSSH parses a signature.
func parseSSH(armored []byte) (envelope, ssh.PublicKey, *ssh.Signature, error) {
	var e envelope
	text := strings.ReplaceAll(string(armored), "\r\n", "\n")
	body, ok := strings.CutPrefix(text, sshBegin+"\n")
	if ok {
		body, ok = strings.CutSuffix(body, "\n"+sshEnd)
	}
	if !ok {
		return e, nil, nil, errors.New("the armor is invalid")
	}
	blob, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(body, "\n", ""))
	if err != nil {
		return e, nil, nil, errors.New("the armor is not base64")
	}
	rest, ok := bytes.CutPrefix(blob, []byte(sshMagic))
	if !ok || ssh.Unmarshal(rest, &e) != nil {
		return e, nil, nil, errors.New("it is not in OpenSSH's format")
	}
	switch {
	case e.Version != 1:
		return e, nil, nil, fmt.Errorf("its version is %d, not 1", e.Version)
	case e.Namespace != namespace:
		return e, nil, nil, fmt.Errorf("its namespace is %.40q, not git", e.Namespace)
	case e.HashAlgorithm != "sha256" && e.HashAlgorithm != "sha512":
		return e, nil, nil, fmt.Errorf("its hash function is %.40q", e.HashAlgorithm)
	}
	key, err := ssh.ParsePublicKey([]byte(e.PublicKey))
	if err != nil {
		return e, nil, nil, errors.New("its key is invalid")
	}
	if err := checkKey(key); err != nil {
		return e, nil, nil, err
	}
	var sig ssh.Signature
	if err := ssh.Unmarshal([]byte(e.Signature), &sig); err != nil {
		return e, nil, nil, errors.New("it cannot be parsed")
	}
	if key.Type() == ssh.KeyAlgoRSA && sig.Format != ssh.KeyAlgoRSASHA256 && sig.Format != ssh.KeyAlgoRSASHA512 {
		return e, nil, nil, fmt.Errorf("its RSA signature has format %.40q", sig.Format)
	}
	return e, key, &sig, nil
}

// data returns the signed data for a payload.
func (e envelope) data(payload []byte) []byte {
	d := signedData{Namespace: e.Namespace, Reserved: e.Reserved, HashAlgorithm: e.HashAlgorithm}
	if e.HashAlgorithm == "sha256" {
		sum := sha256.Sum256(payload)
		d.Hash = string(sum[:])
	} else {
		sum := sha512.Sum512(payload)
		d.Hash = string(sum[:])
	}
	return append([]byte(sshMagic), ssh.Marshal(d)...)
}

// checkKey rejects keys that are too weak, and certificates.
func checkKey(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKECDSA256:
		return nil
	case ssh.KeyAlgoRSA:
		if c, ok := key.(ssh.CryptoPublicKey); ok {
			if k, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && k.N.BitLen() >= minRSABits {
				return nil
			}
		}
		return fmt.Errorf("an RSA key must have at least %d bits", minRSABits)
	}
	return fmt.Errorf("keys of type %.40q are not supported", key.Type())
}
