package feedclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// member is a server: the address to connect to, and the name in its certificate.
type member struct{ addr, name string }

// members is a list of servers that may change.
type members struct {
	text string
	list func(ctx context.Context) ([]member, error)
	// fixed reports that the list does not change.
	fixed bool
}

const (
	// readEvery is the time between two reads of the list. A new server is to be used within 5 s.
	readEvery   = 4 * time.Second
	readTimeout = 5 * time.Second
	maxMembers  = 1 << 14
	maxFile     = 1 << 20
)

const forms = `"host:port,host:port", "dns:host:port", "file:PATH" or "slurm:port"`

// parseMembers reads the description of a list of servers. A nil resolver is that of the machine.
func parseMembers(text string, getenv func(string) string, resolver *net.Resolver) (*members, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "dns":
		host, port, err := split(rest)
		if err != nil {
			return nil, err
		}
		return &members{text: text, list: func(ctx context.Context) ([]member, error) {
			ips, err := resolver.LookupHost(ctx, host)
			var out []member
			for _, ip := range ips {
				out = append(out, member{net.JoinHostPort(ip, port), host})
			}
			return out, err
		}}, nil
	case "file":
		if rest == "" {
			return nil, errors.New("file: needs a path, such as file:/shared/feeders.txt")
		}
		return &members{text: text, list: func(context.Context) ([]member, error) { return readMembers(rest) }}, nil
	case "slurm":
		group, port, ok := strings.Cut(rest, ":")
		variable := "SLURM_JOB_NODELIST"
		if ok {
			variable += "_HET_GROUP_" + group
		} else {
			port = group
		}
		hosts, err := hostList(getenv(variable))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		if len(hosts) == 0 {
			return nil, fmt.Errorf("%s is not set: slurm: is for jobs of Slurm", variable)
		}
		for i := range hosts {
			hosts[i] += ":" + port
		}
		return fixed(text, hosts)
	}
	return fixed(text, strings.Split(text, ","))
}

func fixed(text string, addresses []string) (*members, error) {
	list, err := parseAddresses(addresses)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%q has no servers: write %s", text, forms)
	}
	return &members{text: text, fixed: true, list: func(context.Context) ([]member, error) { return list, nil }}, nil
}

func parseAddresses(addresses []string) (list []member, err error) {
	for _, a := range addresses {
		if a = strings.TrimSpace(a); a == "" {
			continue
		}
		host, port, err := split(a)
		if err != nil {
			return nil, err
		}
		list = append(list, member{net.JoinHostPort(host, port), host})
	}
	if len(list) > maxMembers {
		return nil, fmt.Errorf("%d servers, the limit is %d", len(list), maxMembers)
	}
	return list, nil
}

func split(addr string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(addr)
	if err != nil || host == "" {
		return "", "", fmt.Errorf("%q is not the address of a server: write %s", addr, forms)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", "", fmt.Errorf("%q has no port from 1 to 65535", addr)
	}
	return host, port, nil
}

// readMembers reads a file with an address per line. Text after # is a comment.
func readMembers(path string) ([]member, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []string
	lineOf := bufio.NewScanner(io.LimitReader(f, maxFile))
	for lineOf.Scan() {
		line, _, _ := strings.Cut(lineOf.Text(), "#")
		lines = append(lines, line)
	}
	if err := lineOf.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	list, err := parseAddresses(lines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// hostList expands Slurm's form of a list of hosts: "node[01-03,7],login".
func hostList(text string) ([]string, error) {
	var out []string
	for text != "" {
		end, depth := len(text), 0
		for i, c := range []byte(text) {
			if c == '[' {
				depth++
			} else if c == ']' {
				depth--
			}
			if c == ',' && depth == 0 {
				end = i
				break
			}
		}
		if depth != 0 {
			return nil, fmt.Errorf("%q has brackets that do not close", text)
		}
		hosts, err := expand(text[:end])
		if err != nil {
			return nil, err
		}
		if out = append(out, hosts...); len(out) > maxMembers {
			return nil, fmt.Errorf("more than %d hosts", maxMembers)
		}
		text = strings.TrimPrefix(text[end:], ",")
	}
	return out, nil
}

// expand expands the brackets of one host, the first ones first.
func expand(host string) ([]string, error) {
	before, rest, ok := strings.Cut(host, "[")
	if !ok {
		return []string{host}, nil
	}
	ranges, after, ok := strings.Cut(rest, "]")
	if !ok {
		return nil, fmt.Errorf("%q has brackets that do not close", host)
	}
	tails, err := expand(after)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range strings.Split(ranges, ",") {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || lo < 0 || hi < lo || (hi-lo+1)*len(tails) > maxMembers-len(out) {
			return nil, fmt.Errorf("%q is not a range of hosts", r)
		}
		for n := lo; n <= hi; n++ {
			for _, tail := range tails {
				out = append(out, fmt.Sprintf("%s%0*d%s", before, len(first), n, tail))
			}
		}
	}
	return out, nil
}

// read returns the servers, each once.
func (m *members) read(ctx context.Context) ([]member, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.addr, b.addr) })
	return slices.CompactFunc(list, func(a, b member) bool { return a.addr == b.addr }), nil
}

// unknown reports whether a list cannot be read because a name has no addresses. A name of Kubernetes has none until a
// server is ready.
func unknown(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns)
}

// loopback reports whether an address is on this machine.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
