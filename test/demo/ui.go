package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// page is the command ui, which opens the web UI to the browser of one person.
type page struct {
	process *exec.Cmd
	address string
}

// ui opens the web UI for Olga, who operates the fleet: her token is one for the hub, so that what
// she lets pass or rolls back is written as her.
func (d *demo) ui(ctx context.Context) error {
	if err := d.olga(ctx); err != nil {
		return err
	}
	process := exec.Command(d.federator.binary, "ui", "--no-browser", "--kubeconfig", "olga.yaml")
	process.Dir, process.Stderr = d.dir, d.out
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	d.page = &page{process: process}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("federator ui: %w", err)
	}
	d.page.address = strings.TrimSpace(line[max(0, strings.Index(line, "http://")):])
	if err := d.page.look(ctx); err != nil {
		return err
	}
	d.note("Look at it: %s", d.page.address)
	return nil
}

// look is an error unless the page is there.
func (p *page) look(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "<title>federator</title>")) {
		err = fmt.Errorf("%s: %s", p.address, resp.Status)
	}
	return err
}

func (p *page) stop() error {
	if p == nil {
		return nil
	}
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.AfterFunc(10*time.Second, func() { _ = p.process.Process.Kill() })
	defer late.Stop()
	return p.process.Wait()
}

// olga writes a kubeconfig of the query API with a token that the hub takes, too.
func (d *demo) olga(ctx context.Context) error {
	answer, err := d.fleet.Hub.Client().CoreV1().ServiceAccounts("teams").CreateToken(ctx, "olga", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(filepath.Join(d.dir, "tls.crt"))
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["federator"] = &clientcmdapi.Cluster{Server: d.federator.query + "/fleet", CertificateAuthorityData: authority}
	config.AuthInfos["olga"] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	config.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "federator", AuthInfo: "olga"}
	config.CurrentContext = "fleet"
	text, err := clientcmd.Write(*config)
	return errors.Join(err, d.write("olga.yaml", text))
}
