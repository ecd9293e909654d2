{{/* Remove keys without a value: releases of Helm differ in which of them they keep. Prints nothing. */}}
{{- define "kafka-share-proxy.prune" -}}
{{- $map := . -}}
{{- range keys $map -}}
{{- $value := index $map . -}}
{{- if kindIs "invalid" $value }}{{- $_ := unset $map . }}{{- else if kindIs "map" $value }}{{- include "kafka-share-proxy.prune" $value }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The settings file: the values' `settings`, and what the chart sets where they leave it out. */}}
{{- define "kafka-share-proxy.settings" -}}
{{- $files := "/etc/kafka-share-proxy" -}}
{{- $s := deepCopy .Values.settings -}}
{{- include "kafka-share-proxy.prune" $s -}}
{{- if not $s.listen }}{{- $_ := set $s "listen" "0.0.0.0:9092" }}{{- end -}}
{{- if and (not $s.first_port) (not (include "kafka-share-proxy.onePort" .)) }}{{- $_ := set $s "first_port" (add1 (regexFind "[0-9]+$" $s.listen | int)) }}{{- end -}}
{{- if not $s.admin }}{{- $_ := set $s "admin" "0.0.0.0:8080" }}{{- end -}}
{{- if not $s.advertise }}{{- $_ := set $s "advertise" (include "kafka-share-proxy.serviceHost" .) }}{{- end -}}
{{- if and (not $s.workers) (ne (toString .Values.workers) "1") }}{{- $_ := set $s "workers" .Values.workers }}{{- end -}}
{{- if not $s.log_format }}{{- $_ := set $s "log_format" "json" }}{{- end -}}
{{- if include "kafka-share-proxy.tlsSecretName" . -}}
{{- $tls := default dict $s.client_tls -}}
{{- $_ := set $tls "cert_file" (printf "%s/tls/tls.crt" $files) -}}
{{- $_ := set $tls "key_file" (printf "%s/tls/tls.key" $files) -}}
{{- if .Values.tls.clientCa }}{{- $_ := set $tls "client_ca_file" (printf "%s/tls/ca.crt" $files) }}{{- end -}}
{{- $_ := set $s "client_tls" $tls -}}
{{- end -}}
{{- if eq .Values.mode "fleet" -}}
{{- $cluster := default dict $s.cluster -}}
{{- $peer := default dict $cluster.peer -}}
{{- if not $peer.listen }}{{- $_ := set $peer "listen" (printf "0.0.0.0:%d" (int .Values.fleet.port)) }}{{- end -}}
{{- if not $peer.secret_file }}{{- $_ := set $peer "secret_file" (printf "%s/peer/secret" $files) }}{{- end -}}
{{- if include "kafka-share-proxy.peerTlsSecretName" . -}}
{{- $tls := dict "server_name" (include "kafka-share-proxy.peerServerName" .) -}}
{{- $_ := set $tls "cert_file" (printf "%s/peer-tls/tls.crt" $files) -}}
{{- $_ := set $tls "key_file" (printf "%s/peer-tls/tls.key" $files) -}}
{{- $_ := set $tls "ca_file" (printf "%s/peer-tls/ca.crt" $files) -}}
{{- $_ := set $peer "tls" $tls -}}
{{- end -}}
{{- $_ := set $cluster "mode" "fleet" -}}
{{- $_ := set $cluster "peer" $peer -}}
{{- $_ := set $s "cluster" $cluster -}}
{{- end -}}
{{- toYaml $s -}}
{{- end -}}

{{/* Not empty if all brokers have the bootstrap port, and each a TLS server name. */}}
{{- define "kafka-share-proxy.onePort" -}}
{{- if eq (default "ports" .Values.settings.exposure) "sni" }}true{{ end -}}
{{- end -}}

{{/* With one port: names of the clients' certificate and of the TLSRoute, as a list in JSON. */}}
{{- define "kafka-share-proxy.serverNames" -}}
{{- list .Values.settings.advertise (regexReplaceAll "^[^.]*[{]id[}][^.]*" (default "" .Values.settings.broker_names) "*") | toJson -}}
{{- end -}}

{{/* Number of peer ports of a proxy: one, or one for each worker of two generations (at most 64 workers each). */}}
{{- define "kafka-share-proxy.peerPorts" -}}
{{- $workers := toString (default .Values.workers .Values.settings.workers) -}}
{{- if eq $workers "1" }}1{{ else if eq $workers "auto" }}128{{ else }}{{ mul 2 (int $workers) }}{{ end -}}
{{- end -}}

{{/* Ports as YAML: bootstrap, admin, peer (0: none) to peerEnd, brokers ({id, port}; none with one port). */}}
{{- define "kafka-share-proxy.ports" -}}
{{- $s := include "kafka-share-proxy.settings" . | fromYaml -}}
{{- $ids := .Values.brokers.ids -}}
{{- if not $ids }}{{- $ids = untilStep (int .Values.brokers.first) (int (add .Values.brokers.first .Values.brokers.count)) 1 }}{{- end -}}
bootstrap: {{ regexFind "[0-9]+$" $s.listen | int }}
admin: {{ regexFind "[0-9]+$" $s.admin | int }}
peer: {{ if eq .Values.mode "fleet" }}{{ regexFind "[0-9]+$" $s.cluster.peer.listen | int }}{{ else }}0{{ end }}
peerEnd: {{ if eq .Values.mode "fleet" }}{{ add (regexFind "[0-9]+$" $s.cluster.peer.listen | int) (include "kafka-share-proxy.peerPorts" . | int) -1 }}{{ else }}0{{ end }}
brokers:
{{- if include "kafka-share-proxy.onePort" . }} []{{- else }}
{{- range $ids }}
  - id: {{ int . }}
    port: {{ add (int $s.first_port) (int .) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Refuse values that cannot work, with what to do. Prints nothing. */}}
{{- define "kafka-share-proxy.check" -}}
{{- $s := .Values.settings -}}
{{- $upstream := default dict $s.upstream -}}
{{- if not $upstream.bootstrap }}{{- fail "settings.upstream.bootstrap is missing: HOST:PORT,HOST:PORT of some brokers" }}{{- end -}}
{{- if (default dict $upstream.sasl).password }}{{- fail "settings.upstream.sasl.password: no secret may be in the ConfigMap; use password_file with secretFiles, or secretEnv" }}{{- end -}}
{{- if (default dict (default dict $s.cluster).peer).secret }}{{- fail "settings.cluster.peer.secret: no secret may be in the ConfigMap; use fleet.existingSecret" }}{{- end -}}
{{- if and (eq .Values.mode "single") (ne (int .Values.replicas) 1) }}{{- fail (printf "replicas: %d needs mode: fleet; one proxy serves with mode: single" (int .Values.replicas)) }}{{- end -}}
{{- if and (eq .Values.mode "single") (eq (default "single" (default dict $s.cluster).mode) "fleet") }}{{- fail "settings.cluster.mode: set mode: fleet of the chart instead" }}{{- end -}}
{{- if and (ne .Values.service.type "ClusterIP") (not $s.advertise) }}{{- fail (printf "service.type %s needs settings.advertise: the host name at which clients reach the Service" .Values.service.type) }}{{- end -}}
{{- if and .Values.tls.certificate.enabled (not .Values.tls.certificate.issuerRef) }}{{- fail "tls.certificate.issuerRef is missing: {name: ISSUER, kind: Issuer or ClusterIssuer}" }}{{- end -}}
{{- if and .Values.fleet.tls.certificate.enabled (not .Values.fleet.tls.certificate.issuerRef) }}{{- fail "fleet.tls.certificate.issuerRef is missing: {name: ISSUER, kind: Issuer or ClusterIssuer}" }}{{- end -}}
{{- range concat .Values.secretEnv .Values.extraEnv -}}
{{- if has .name (list "KSP_LISTEN" "KSP_FIRST_PORT" "KSP_ADMIN" "KSP_DRAIN_S" "KSP_WORKERS" "KSP_CLUSTER__MODE" "KSP_CLUSTER__PEER__LISTEN" "KSP_CLUSTER__PEER__ADVERTISE") }}{{- fail (printf "%s: ports, probes and the grace period of the manifests follow `settings`; set it there, or mode, workers and fleet.port" .name) }}{{- end -}}
{{- end -}}
{{- if include "kafka-share-proxy.onePort" . -}}
{{- if not $s.advertise }}{{- fail "settings.exposure sni needs settings.advertise: the name that clients bootstrap from" }}{{- end -}}
{{- if not (regexMatch "^[^.]*[{]id[}][^.]*[.]" (default "" $s.broker_names)) }}{{- fail "settings.exposure sni needs settings.broker_names with {id} before the first dot, for example broker-{id}.kafka.example" }}{{- end -}}
{{- if not (include "kafka-share-proxy.tlsSecretName" .) }}{{- fail "settings.exposure sni needs tls.secretName or tls.certificate: clients name their broker by TLS" }}{{- end -}}
{{- else if .Values.tlsRoute.enabled }}{{- fail "tlsRoute needs settings.exposure: sni" }}
{{- end -}}
{{- $ports := include "kafka-share-proxy.ports" . | fromYaml -}}
{{- if gt (int $ports.peerEnd) 65535 }}{{- fail (printf "the peer ports of the workers would be %d to %d; set a lower fleet.port" (int $ports.peer) (int $ports.peerEnd)) }}{{- end -}}
{{- range list $ports.bootstrap $ports.admin -}}
{{- if and (ge (int .) (int $ports.peer)) (le (int .) (int $ports.peerEnd)) }}{{- fail (printf "port %d is one of the peer ports %d to %d; set another fleet.port" (int .) (int $ports.peer) (int $ports.peerEnd)) }}{{- end -}}
{{- end -}}
{{- range $ports.brokers -}}
{{- if or (eq (int .port) (int $ports.bootstrap)) (eq (int .port) (int $ports.admin)) (and (ge (int .port) (int $ports.peer)) (le (int .port) (int $ports.peerEnd))) }}{{- fail (printf "broker %d would have port %d, which another listener has; set settings.first_port, settings.admin or fleet.port" (int .id) (int .port)) }}{{- end -}}
{{- if gt (int .port) 65535 }}{{- fail (printf "broker %d would have port %d; set a lower settings.first_port" (int .id) (int .port)) }}{{- end -}}
{{- end -}}
{{- end -}}
