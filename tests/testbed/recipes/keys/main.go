// Writes the RSA key with which the testbed's API server signs service account tokens to the file named by its
// argument, so that no key is kept in the repository and no tool but Go is needed.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log"
	"os"
)

func main() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		log.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(os.Args[1], text, 0o600); err != nil {
		log.Fatal(err)
	}
}
