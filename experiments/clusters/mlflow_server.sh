#!/usr/bin/env bash
# Start MLflow's server on a cluster's head, with a password. It listens on this machine only: forward its port to see it.
# User and password are those of ~/.mlflow/credentials, which MLflow's clients read too. MLflow creates the user once: to
# change the password, stop the server and remove ~/mlflow/users.db.
set -euo pipefail
umask 077
folder=${MLFLOW_SERVER_FOLDER:-$HOME/mlflow}
port=${MLFLOW_SERVER_PORT:-5000}
mkdir -p "$folder"

value() { sed -n "s/^ *$1 *= *//p" ~/.mlflow/credentials | head -n 1; }
name=$(value mlflow_tracking_username) password=$(value mlflow_tracking_password)
if [ -z "$name" ] || [ ${#password} -lt 12 ]; then
    echo "~/.mlflow/credentials: expected mlflow_tracking_username and a mlflow_tracking_password of 12 letters or more" >&2
    exit 1
fi
case $password in *%*) echo "MLflow can't read a password with a %" >&2; exit 1 ;; esac
cat > "$folder/auth.ini" <<END
[mlflow]
default_permission = READ
database_uri = sqlite:///$folder/users.db
admin_username = $name
admin_password = $password
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
END
test -s "$folder/key" || head -c 32 /dev/urandom | base64 > "$folder/key"

if curl --silent --fail "http://127.0.0.1:$port/health" > /dev/null; then
    echo "MLflow's server is already running"
    exit 0
fi
cd "$folder"
export MLFLOW_AUTH_CONFIG_PATH=$folder/auth.ini MLFLOW_FLASK_SERVER_SECRET_KEY=$(cat "$folder/key")
export MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false  # seven processes that nothing here uses
nohup setsid mlflow server --app-name basic-auth --host 127.0.0.1 --port "$port" --workers 2 \
    --backend-store-uri "sqlite:///$folder/mlflow.db" --artifacts-destination "$folder/artifacts" \
    > "$folder/log" 2>&1 < /dev/null &
for _ in $(seq 180); do
    if curl --silent --fail "http://127.0.0.1:$port/health" > /dev/null; then
        echo "MLflow's server is at http://127.0.0.1:$port"
        exit 0
    fi
    sleep 1
done
echo "MLflow's server did not start: see $folder/log" >&2
exit 1
