package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/internal/exit"
)

const help = `Open the web UI of a federator in a browser, as the user of your kubeconfig.

It listens on a loopback address for as long as it runs, and adds your credentials to
what the browser asks. Only a browser that opens the printed address gets in, once: its
code is of no use afterwards. Log out in the page, or press Ctrl-C, to end it.

  federator ui
  federator ui --kubeconfig fleet.yaml --no-browser`

// Command returns the command.
func Command(version string) *cobra.Command {
	flags := queryclient.Flags{Version: version}
	var listen string
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Open the web UI in a browser, with the credentials of a kubeconfig",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, &flags, listen, !noBrowser)
		},
	}
	flags.RegisterServer(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `address` to listen on")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "only print the address")
	return cmd
}

func run(cmd *cobra.Command, flags *queryclient.Flags, listen string, open bool) error {
	ctx := cmd.Context()
	config, err := flags.RESTConfig()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return exit.BadInput(fmt.Errorf("--listen: %w", err))
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return errors.Join(exit.BadInput(fmt.Errorf("--listen: %s is not a loopback address: anybody who reaches it reads with your credentials", l.Addr())), l.Close())
	}
	p, err := newProxy(config, flags.Version, l.Addr().String())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The web UI, for one browser: %s\n", p.address())
	if !open {
		return p.serve(ctx, l)
	}
	dir, err := os.MkdirTemp("", "federator-ui-")
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err := browse(ctx, dir, p.address()); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "opening a browser failed (%v): open the address yourself\n", err)
	}
	return errors.Join(p.serve(ctx, l), os.RemoveAll(dir))
}

// page leads a browser to an address. It is opened in place of the address, since other users of
// the machine see the arguments of processes, but not the content of this file.
var page = template.Must(template.New("page").Parse(`<!doctype html><meta http-equiv="refresh" content="0;url={{.}}"><title>federator</title>`))

// browse opens an address in the user's browser, by a file in a directory.
func browse(ctx context.Context, dir, address string) error {
	file := filepath.Join(dir, "federator.html")
	var text bytes.Buffer
	if err := page.Execute(&text, address); err != nil {
		return err
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return err
	}
	name, args := "xdg-open", []string{file}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", file}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	return cmd.Run()
}

// serve serves until ctx ends, or the page has logged out.
func (p *proxy) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case <-ctx.Done():
	case <-p.ended:
	case err = <-served:
		return fmt.Errorf("serving the web UI: %w", err)
	}
	// Streams never end by themselves; the answer to a log-out has a moment.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if errors.Is(server.Shutdown(drain), context.DeadlineExceeded) {
		err = server.Close()
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	p.close()
	return err
}
