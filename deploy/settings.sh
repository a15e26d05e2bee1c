# `. deploy/settings.sh`, next to afa.env, exports its lines exactly as written. With `. afa.env` the shell
# would interpret `&`, `;` and `$` in addresses and passwords.
[ -r afa.env ] || { echo "afa.env is not here, or cannot be read" >&2; return 1; }
while IFS= read -r line || [ -n "$line" ]; do
  case $line in
    '' | '#'*) continue ;;
  esac
  name=${line%%=*}
  case $name in
    "$line" | '' | [0-9]* | *[!A-Za-z0-9_]*) name= ;;
  esac
  case ${line#*=} in
    \'* | \"* | *"$(printf '\r')"*) name= ;;
  esac
  if [ -z "$name" ]; then
    echo "afa.env: NAME=value is wanted, as it is, without export, quotes and Windows' ends: ${line%%=*}" >&2
    return 1
  fi
  export "$line"
done < afa.env
unset line name
